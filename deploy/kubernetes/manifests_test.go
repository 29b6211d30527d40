// Package kubernetes_test runs what the manifests say: their commands, and three processes of the
// Deployment, for which it plays the kubelet.
package kubernetes_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// manifests are what the files of this folder say.
type manifests struct {
	deployment apps.Deployment
	budget     policy.PodDisruptionBudget
	jobs       map[string]batch.CronJob
}

func read(t *testing.T) (m manifests) {
	t.Helper()
	decode(t, "deployment.yaml", &m.deployment, &m.budget)
	var jobs [2]batch.CronJob
	decode(t, "cronjobs.yaml", &jobs[0], &jobs[1])
	m.jobs = map[string]batch.CronJob{jobs[0].Name: jobs[0], jobs[1].Name: jobs[1]}
	return m
}

// decode reads the documents of a file, as strictly as the API server does when it is asked to: a
// field that there is not, or that is there twice, is an error.
func decode(t *testing.T, file string, into ...any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	documents := strings.Split(string(text), "\n---\n")
	require.Len(t, documents, len(into))
	for i, document := range documents {
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), into[i]), file)
	}
}

func TestManifests(t *testing.T) {
	m := read(t)
	misspelt := []byte("spec: {replica: 3}")
	require.Error(t, yaml.UnmarshalStrict(misspelt, &apps.Deployment{}))

	template := m.deployment.Spec.Template
	for _, selector := range []map[string]string{
		m.deployment.Spec.Selector.MatchLabels, m.budget.Spec.Selector.MatchLabels,
		template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		require.Equal(t, template.Labels, selector)
	}
	container := template.Spec.Containers[0]
	require.Nil(t, container.Lifecycle, "no preStop is needed")
	for _, probe := range []*core.Probe{container.LivenessProbe, container.ReadinessProbe} {
		require.Equal(t, container.Ports[0].Name, probe.HTTPGet.Port.StrVal)
	}
	require.Equal(t, []string{"apps/v1 Deployment", "policy/v1 PodDisruptionBudget"}, []string{
		m.deployment.APIVersion + " " + m.deployment.Kind, m.budget.APIVersion + " " + m.budget.Kind,
	})
	restricted(t, template.Spec)
	for name, job := range m.jobs {
		require.Equal(t, "batch/v1 CronJob", job.APIVersion+" "+job.Kind, name)
		restricted(t, job.Spec.JobTemplate.Spec.Template.Spec)
	}
}

// restricted requires what the Pod Security Standard of that name does, and no token.
func restricted(t *testing.T, pod core.PodSpec) {
	t.Helper()
	require.False(t, *pod.AutomountServiceAccountToken)
	require.True(t, *pod.SecurityContext.RunAsNonRoot)
	require.Equal(t, core.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		require.False(t, *container.SecurityContext.AllowPrivilegeEscalation, container.Name)
		require.Equal(t, []core.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop, container.Name)
	}
}

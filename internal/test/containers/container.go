package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// life ends a container that nobody removed because this process was killed.
const life = time.Hour

// start runs a container of an image, which it pulls if need be.
func start(ctx context.Context, request Request) (address string, remove func() error, err error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return "", nil, err
	}
	if err := pull(ctx, pool, request); err != nil {
		return "", nil, err
	}
	// A name, so that the container can be removed if it was created but did not start.
	name := fmt.Sprintf("txlock-%d-%d", os.Getpid(), time.Now().UnixNano())
	container, err := pool.RunWithOptions(&dockertest.RunOptions{
		Name: name, Repository: request.Repository, Tag: request.Tag, Env: request.Environment, Cmd: request.Command,
	}, func(host *docker.HostConfig) { host.AutoRemove = true })
	if err != nil {
		return "", nil, errors.Join(err, pool.RemoveContainerByName(name))
	}
	remove = func() error { return pool.Purge(container) }
	_ = container.Expire(uint(life.Seconds()))
	if address = container.GetHostPort(request.Port); address == "" {
		err := fmt.Errorf("%s:%s does not publish %s", request.Repository, request.Tag, request.Port)
		return "", nil, errors.Join(err, remove())
	}
	return address, remove, nil
}

// pull fetches the image unless the engine has it. It can take minutes, so it ends with ctx.
func pull(ctx context.Context, pool *dockertest.Pool, request Request) error {
	_, err := pool.Client.InspectImage(request.Repository + ":" + request.Tag)
	if !errors.Is(err, docker.ErrNoSuchImage) {
		return err
	}
	return pool.Client.PullImage(docker.PullImageOptions{
		Repository: request.Repository, Tag: request.Tag, Context: ctx,
	}, docker.AuthConfiguration{})
}

module github.com/txlock/txlock/serve

go 1.25.0

require (
	github.com/stretchr/testify v1.12.1
	github.com/txlock/txlock v0.1.0
)

require (
	go.uber.org/goleak v1.3.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

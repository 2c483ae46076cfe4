module github.com/kuryr-go/kuryr/openstacksim

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/gophercloud/gophercloud/v2 v2.15.0
	github.com/spf13/cobra v1.10.2
	go.yaml.in/yaml/v4 v4.0.0
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
)

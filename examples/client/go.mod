module github.com/coopr/coopr/examples/client

go 1.26.0

require github.com/coopr/coopr v0.0.0

require (
	github.com/hashicorp/go-immutable-radix v1.3.1 // indirect
	github.com/hashicorp/golang-lru v1.0.2 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
)

replace github.com/coopr/coopr => ../..

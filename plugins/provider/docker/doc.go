// Package docker is the provider "docker": a node is a container of a Docker engine that behaves
// like a machine, with sshd and an address of its own (docs/plugins/docker.md). The container's
// name follows from cluster and node number; its labels identify the node.
package docker

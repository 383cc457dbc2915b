// Package docker is the provider "docker": a node is a container of a Docker
// engine that behaves as a machine, with sshd and an address of its own
// (docs/plugins/docker.md). Its name follows from cluster and node number, its
// labels say whose it is.
package docker

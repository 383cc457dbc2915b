// Package digitalocean is the provider "digitalocean": a node is a droplet
// (docs/plugins/digitalocean.md).
package digitalocean

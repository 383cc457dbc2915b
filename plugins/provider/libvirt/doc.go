// Package libvirt is the provider "libvirt": a node is a domain of a libvirt
// daemon, on a disk over an image of its storage pool (docs/plugins/libvirt.md).
// What a domain is for stands in its own XML, as metadata.
package libvirt

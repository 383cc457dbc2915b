// Package libvirt is the provider "libvirt": a node is a domain of a libvirt daemon, with a disk
// over an image of its storage pool (docs/plugins/libvirt.md). The domain's node is recorded as
// metadata in the domain's XML.
package libvirt

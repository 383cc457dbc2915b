// Package vsphere is the provider "vsphere": a node is a virtual machine of a vCenter or an ESXi
// host, cloned from a template (docs/plugins/vsphere.md).
package vsphere

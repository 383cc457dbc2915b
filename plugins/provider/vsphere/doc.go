// Package vsphere is the provider "vsphere": a node is a virtual machine of a
// vCenter or an ESXi host, a clone of a template (docs/plugins/vsphere.md).
package vsphere

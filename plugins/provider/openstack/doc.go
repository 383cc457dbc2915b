// Package openstack is the providers "openstack" and "rackspace", whose cloud is
// an OpenStack with a way of its own to log in: a node is a server of Nova
// (docs/plugins/openstack.md, docs/plugins/rackspace.md).
package openstack

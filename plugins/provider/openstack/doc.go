// Package openstack is the providers "openstack" and "rackspace". Rackspace is an OpenStack with
// its own login. A node is a server of Nova (docs/plugins/openstack.md, docs/plugins/rackspace.md).
package openstack

// Package openstack runs a real OpenStack for tests, from Debian's packages in one light machine
// (testing/lab): Keystone, Glance, Placement, Neutron and Nova. Only Nova's hypervisor is a fake.
// [Cloud.Hypervisor] runs the servers in its place and uses nothing but what Nova reports about
// them.
//
// run.sh makes the layers of packages (make test-openstack). The first Start sets OpenStack up with
// setup.sh and saves the result as one more layer.
package openstack

// Package openstack is a real OpenStack for tests, made of Debian's packages in one
// light machine (testing/lab): Keystone, Glance, Placement, Neutron and Nova. Nova's
// hypervisor alone pretends. What it would run, Hypervisor runs: it is told what Nova
// says of a server, and nothing else.
//
// run.sh makes the layers of packages (make test-openstack). The first Start sets all
// up, by setup.sh, which is kept as one more layer.
package openstack

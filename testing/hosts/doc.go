// Package hosts has end-to-end tests of control hosts: machines with systemd and a coopr-agent
// each, set up by the script for Vagrant. The faults are those of machines: network partitions,
// power failures, a frozen host, a lossy network.
package hosts

// Package hosts has end-to-end tests of control hosts: machines of their own, each
// with systemd and a coopr-agent, set up by the script that sets up Vagrant's. What
// happens to them happens to machines: networks that part, power that fails, a host
// that stands still, a wire that loses.
package hosts

// Package libvirt tests the provider libvirt with real virtual machines. Their host is a light
// machine with Debian's libvirtd and QEMU (without hardware acceleration), on which the real
// programs make clusters. Run it with "make test-libvirt".
package libvirt

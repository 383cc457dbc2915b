// Package libvirt tries the provider libvirt on real virtual machines: a light machine
// is their host, with Debian's libvirtd and QEMU (without hardware's help), and the real
// programs make clusters there. It is a tier of its own: make test-libvirt.
package libvirt

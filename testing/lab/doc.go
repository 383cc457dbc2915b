// Package lab runs light machines for tests: processes in namespaces of their own, over a shared
// Debian root file system. Each has its own address, host name, users, sshd and packages, or a real
// systemd. A machine starts in a tenth of a second; nothing is installed on the host, and nothing
// remains.
//
// Enter, the first call of a package's TestMain, moves the test process into an arena: a network
// namespace without a way out, a mount namespace and a pid namespace. A test cannot reach a foreign
// address by mistake, and when its process ends, however it ends, the kernel ends all machines.
//
// The wire between machines is a switch in the test process itself (Switch). It loses, delays and
// cuts frames per pair and direction, which kernels of small test machines cannot do (they often
// lack netem).
//
// The lab needs root and the image that "make lab-image" builds once from Debian's packages. If
// either is missing, New skips the test with the reason.
package lab

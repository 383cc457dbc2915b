// Package lab makes light machines for tests: processes in namespaces of
// their own, over a shared Debian root file system, each with its own address,
// host name, users, sshd and packages, or with a real systemd. One is up in a
// tenth of a second; nothing is installed on the host, and nothing stays.
//
// Enter, the first line of a package's TestMain, moves the test process into an
// arena: a network namespace with no way out, a mount namespace and a pid
// namespace. A test cannot reach a foreign address by mistake, and when its
// process ends, however it ends, the kernel takes all machines along.
//
// The wire between machines is a switch in the test process itself (Switch):
// it loses, delays and cuts as it is told, per pair and direction, which the
// kernels of small test machines cannot (they often lack netem).
//
// What it needs is root and the image that "make lab-image" builds once from
// Debian's packages; where either is missing, New skips the test and says so.
package lab

// Package local is the provider "local": a node is a folder, a loopback address and a group of
// supervised processes on the agent's machine. It needs no root and installs nothing. It is for
// trying Coopr, for development and for tests that start real processes.
//
// Below its root:
//
//	<cluster>/<number>/         a node; node.json is its record
//	.addresses/127.x.y.z        one file per address in use, naming its node
//	.work/                      nodes that are being made or removed
//
// A node appears and disappears by one rename, so that it always exists completely or not at all,
// and several agents of one machine can share a root.
package local

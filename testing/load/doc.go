// Package load puts an agent under the load of a hostile tenant and of strangers, and looks at what is left for others.
package load

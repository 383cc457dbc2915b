// Package listener binds the port of the HTTP API, with its certificate and its
// limit of connections per client.
package listener

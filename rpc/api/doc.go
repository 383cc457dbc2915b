// Package api holds the types of the HTTP API's requests and answers, the names of its
// headers and the types of its problem documents. It has no code of a server or a client
// and imports only pure packages of the engine, so that clients can use it.
package api

// Package joyent is the provider "joyent": a node is an instance of Triton, reached through its
// CloudAPI (docs/plugins/joyent.md).
package joyent

// Package gcp is the provider "gcp": a node is an instance of Google Compute Engine
// (docs/plugins/gcp.md).
package gcp

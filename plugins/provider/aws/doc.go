// Package aws is the provider "aws": a node is an instance of Amazon EC2 (docs/plugins/aws.md).
package aws

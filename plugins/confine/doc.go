// Package confine starts programs that must not reach what the agent can reach. Every plugin passes
// it: the host describes a program and its limits in a Profile, and a short-lived process, `coopr-agent
// confine`, applies the profile to itself and becomes the program (docs/decisions/067-launcher.md).
package confine

// Package config is what an operator can set on an agent: where the values come from (flags over environment over files
// over defaults), what is wrong with them (all of it at once, each fault with its place), and which of them may change
// without a restart.
//
// A field exists once, in the Config struct: its tags give its name, its documentation and whether a reload reaches it,
// and the flags, the environment variables, docs/agent.yaml and the reload's report all follow from there.
package config

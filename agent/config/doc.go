// Package config loads and checks the settings of an agent. Flags override the environment, which overrides files, which
// override the defaults. All faults are reported at once, each with its place.
//
// A setting is defined once, as a field of Config. The field's tags have its name and documentation, and whether a reload
// changes it. The flags, the environment variables and docs/agent.yaml are derived from the fields.
package config

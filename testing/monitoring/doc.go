// Package monitoring has tests of examples/monitoring: the alerts against promtool, and the dashboard against a real Prometheus that
// scrapes a real agent.
package monitoring

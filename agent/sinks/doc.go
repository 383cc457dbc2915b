// Package sinks has the sinks of the audit log: a file, a syslog server, a webhook, mail.
package sinks

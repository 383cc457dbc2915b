// Package wire holds the values that a plugin process and its host share before they connect by
// gRPC: the handshake and the limits of messages.
package wire

import "github.com/hashicorp/go-plugin"

const (
	// ProtocolVersion is the version of rpc/proto/plugin.proto on both sides.
	ProtocolVersion = 1
	// MaxMessage bounds one gRPC message, in bytes. Batches are split long before; only a single
	// very large task comes close.
	MaxMessage = 64 << 20
	// BatchBytes is the size at which either side closes a batch and begins another.
	BatchBytes = 1 << 20
	// Window is the flow-control window of the one stream, in bytes. A fixed window avoids the
	// pings with which gRPC would otherwise measure one.
	Window = 4 << 20
	// MaxLogLine bounds one line of a task's log, in bytes; longer lines are split.
	MaxLogLine = 64 << 10
	// SettingsVar is the variable that says where a process finds its plugin's settings.
	SettingsVar = "COOPR_PLUGIN_SETTINGS"
	// SettingsOnInput says that they are the first line of standard input.
	SettingsOnInput = "stdin"
	// MaxLogTail bounds Result.log_tail, in bytes.
	MaxLogTail = 2 << 10
)

// Handshake is go-plugin's check that the program is a plugin of Coopr, started
// by an agent. It is not a secret.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{
		ProtocolVersion:  ProtocolVersion,
		MagicCookieKey:   "COOPR_PLUGIN",
		MagicCookieValue: "b4f1c6f2-6f0c-4a52-9a33-a6a0a2f5a1c7",
	}
}

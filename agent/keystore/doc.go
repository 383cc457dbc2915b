// Package keystore opens the keyring of an agent that starts, as its configuration says. A keyring that is locked keeps the agent waiting:
// for a passphrase, which somebody gives on the agent's machine, or for a service or program that decrypts the keyring's local key.
package keystore

package roster

// KeyringExport is a copy of the keyring that was written for a backup.
type KeyringExport struct {
	Number uint32 // of the mesh key that was active
	Print  []byte // its fingerprint
	At     int64  // when, in Unix milliseconds
}

package local

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/netip"
	"os"
	"path"
)

// span is the number of addresses: 127.64.0.1 to 127.127.255.254, without those that end in 0 or
// 255.
const span = 64 * 256 * 254

// nth returns the n-th address of the span.
func nth(n uint32) string {
	return netip.AddrFrom4([4]byte{127, byte(64 + n/(256*254)), byte(n / 254 % 256), byte(1 + n%254)}).String()
}

// allocate reserves an address for a node, or returns the one that it has already. The search
// begins at a hash of the node's name, so that a node finds its address again and nodes of
// different roots rarely collide.
func allocate(root *os.Root, base, name string, fence uint64) (string, error) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(base + "\x00" + name))
	first := h.Sum32() % span
	for i := range uint32(span) {
		address := nth((first + i) % span)
		file := path.Join(addresses, address)
		// The file is written under another name and linked into place, so that it is never empty.
		tmp := path.Join(workDir, fmt.Sprintf("address-%s-%s-%d", path.Dir(name), path.Base(name), fence))
		if err := root.WriteFile(tmp, []byte(name), 0o600); err != nil {
			return "", err
		}
		err := root.Link(tmp, file)
		_ = root.Remove(tmp)
		if err == nil {
			return address, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		if owner, err := root.ReadFile(file); err == nil && string(owner) == name {
			return address, nil
		}
	}
	return "", fmt.Errorf("all %d loopback addresses are in use", span)
}

// release frees a node's address, unless it belongs to another node.
func release(root *os.Root, address, name string) error {
	if _, err := netip.ParseAddr(address); err != nil {
		return nil
	}
	file := path.Join(addresses, address)
	owner, err := root.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && string(owner) != name {
		return nil
	}
	if err != nil {
		return err
	}
	return root.Remove(file)
}

// reserved returns the address that a node without a record has reserved. It searches a little
// further than the first gap, because the nodes that had the addresses before it may have been
// deleted.
func reserved(root *os.Root, base, name string) (string, bool) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(base + "\x00" + name))
	first := h.Sum32() % span
	for i := range uint32(64) {
		address := nth((first + i) % span)
		if owner, err := root.ReadFile(path.Join(addresses, address)); err == nil && string(owner) == name {
			return address, true
		}
	}
	return "", false
}

package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// Sizes and numbers of bbolt's file format. Its numbers have the byte order of the machine.
const (
	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	boltHeader   = 16 // of a page: id, kind, count of elements, count of further pages
	boltElement  = 16
	boltMetaSize = 64
	boltBranch   = 1
	boltLeaf     = 2
	boltBucket   = 1 // flag of a leaf's element
)

// checkPages walks all pages of a bbolt file that are in use. bbolt does the same when it opens the file,
// but a damaged page makes it panic, in part on a goroutine of its own, which ends the process. A file
// that is missing or empty is not a fault.
func checkPages(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return explain(err)
	}
	defer func() { _ = f.Close() }() // only read from
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return nil
	}
	b := &boltPages{file: f, size: info.Size(), seen: make(map[uint64]bool)}
	root, err := b.meta()
	if err == nil {
		err = b.page(root, nil, nil)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	return nil
}

type boltPages struct {
	file     io.ReaderAt
	size     int64
	pageSize uint64
	end      uint64 // the first page that was never used
	seen     map[uint64]bool
}

// meta reads the newest intact meta page of the two, and returns the root's page.
func (b *boltPages) meta() (root uint64, err error) {
	var newest uint64
	for _, at := range []int64{0, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16} {
		var m [boltMetaSize]byte
		if _, err := b.file.ReadAt(m[:], at+boltHeader); err != nil {
			continue // behind the end
		}
		sum := fnv.New64a()
		sum.Write(m[:boltMetaSize-8])
		size := uint64(binary.NativeEndian.Uint32(m[8:]))
		if binary.NativeEndian.Uint32(m[:]) != boltMagic || binary.NativeEndian.Uint32(m[4:]) != boltVersion ||
			binary.NativeEndian.Uint64(m[56:]) != sum.Sum64() || size == 0 || at != 0 && at != int64(size) {
			continue
		}
		if tx := binary.NativeEndian.Uint64(m[48:]); b.pageSize == 0 || tx > newest {
			newest, b.pageSize = tx, size
			root = binary.NativeEndian.Uint64(m[16:])
			b.end = binary.NativeEndian.Uint64(m[40:])
		}
	}
	if b.pageSize == 0 {
		return 0, errors.New("there is no valid meta page")
	}
	// bbolt also writes to pages that are free, and maps them into memory. No product below overflows.
	if has := uint64(b.size) / b.pageSize; b.end > has {
		return 0, fmt.Errorf("it was cut off: it has %d pages, and had %d", has, b.end)
	}
	return root, nil
}

// page checks a page and those below it. Its keys must not be below low, and must be below high; nil is
// no limit.
func (b *boltPages) page(id uint64, low, high []byte) error {
	var head [boltHeader]byte
	if id < 2 || id >= b.end {
		return fmt.Errorf("page %d is referenced but does not exist", id)
	}
	if _, err := b.file.ReadAt(head[:], int64(id*b.pageSize)); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	further := uint64(binary.NativeEndian.Uint32(head[12:]))
	if binary.NativeEndian.Uint64(head[:]) != id || id+further >= b.end {
		return fmt.Errorf("page %d has a wrong header", id)
	}
	for i := id; i <= id+further; i++ {
		if b.seen[i] {
			return fmt.Errorf("page %d is referenced twice", i)
		}
		b.seen[i] = true
	}
	data := make([]byte, (further+1)*b.pageSize)
	if _, err := b.file.ReadAt(data, int64(id*b.pageSize)); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	if err := b.elements(data, low, high); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// elements checks the elements of a page, which may also stand within a leaf.
func (b *boltPages) elements(data, low, high []byte) error {
	if len(data) < boltHeader {
		return errors.New("the page is too short")
	}
	kind, count := binary.NativeEndian.Uint16(data[8:]), int(binary.NativeEndian.Uint16(data[10:]))
	if kind != boltBranch && kind != boltLeaf || kind == boltBranch && count == 0 {
		return errors.New("the page has a wrong header")
	}
	keys, values := make([][]byte, count), make([][]byte, count)
	for i := range count {
		at := boltHeader + i*boltElement
		if at+boltElement > len(data) {
			return errors.New("the page has too many elements")
		}
		e := data[at:]
		pos, key, value := binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:]), uint32(0)
		if kind == boltLeaf {
			pos, key, value = binary.NativeEndian.Uint32(e[4:]), binary.NativeEndian.Uint32(e[8:]), binary.NativeEndian.Uint32(e[12:])
		}
		if uint64(pos)+uint64(key)+uint64(value) > uint64(len(e)) {
			return fmt.Errorf("element %d extends beyond the page", i)
		}
		keys[i], values[i] = e[pos:pos+key], e[pos+key:pos+key+value]
		if i > 0 && bytes.Compare(keys[i-1], keys[i]) >= 0 || bytes.Compare(keys[i], low) < 0 ||
			high != nil && bytes.Compare(keys[i], high) >= 0 {
			return fmt.Errorf("element %d is out of order", i)
		}
	}
	for i := range count {
		e := data[boltHeader+i*boltElement:]
		var err error
		switch {
		case kind == boltBranch:
			below := high
			if i+1 < count {
				below = keys[i+1]
			}
			err = b.page(binary.NativeEndian.Uint64(e[8:]), keys[i], below)
		case binary.NativeEndian.Uint32(e)&boltBucket != 0:
			err = b.bucket(values[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket checks a bucket: its value holds the number of its root's page, or 0 and the page itself.
func (b *boltPages) bucket(value []byte) error {
	if len(value) < boltHeader {
		return errors.New("a bucket is too short")
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return b.page(root, nil, nil)
	}
	return b.elements(value[boltHeader:], nil, nil)
}

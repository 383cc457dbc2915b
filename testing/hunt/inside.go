package hunt

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"io"
)

// Bounds of what is decompressed: of one stream in bytes, and of streams within streams.
const (
	mostInside = 256 << 20
	deepest    = 3
)

// inside calls fn with the content of each compressed stream in data, wherever it begins: gzip, zlib (which git uses) and the files
// of zip archives, and what is compressed in these.
func inside(data []byte, fn func(what string, data []byte)) {
	x := &inflater{fn: fn}
	x.search("", data, 1)
}

type inflater struct {
	fn    func(what string, data []byte)
	flate io.ReadCloser
}

func (x *inflater) search(within string, data []byte, depth int) {
	for i := 0; i+2 < len(data); i++ {
		kind, body := "", 0
		switch c := data[i+1]; {
		case data[i] == 0x1f && c == 0x8b && data[i+2] == 8:
			kind, body = "gzip", gzipBody(data[i:])
		case data[i] == 0x78 && (c == 0x01 || c == 0x5e || c == 0x9c || c == 0xda):
			kind, body = "zlib", 2
		case data[i] == 'P' && c == 'K' && data[i+2] == 3:
			kind, body = "zip", zipBody(data[i:])
		}
		if body == 0 || i+body >= len(data) {
			continue
		}
		// Damaged data counts as far as it goes. Most of what looks like a beginning is none, and has next to nothing.
		content := x.inflate(data[i+body:])
		if len(content) < shortest {
			continue
		}
		x.fn(within+kind, content)
		if depth < deepest {
			x.search(within+kind+" in ", content, depth+1)
		}
	}
}

// inflate returns what it can decompress.
func (x *inflater) inflate(data []byte) []byte {
	r := bytes.NewReader(data)
	if x.flate == nil {
		x.flate = flate.NewReader(r)
	} else if err := x.flate.(flate.Resetter).Reset(r, nil); err != nil {
		return nil
	}
	content, _ := io.ReadAll(io.LimitReader(x.flate, mostInside))
	return content
}

// gzipBody returns the length of the header of gzip data, or 0.
func gzipBody(data []byte) int {
	if len(data) < 10 {
		return 0
	}
	flags, at := data[3], 10
	if flags&4 != 0 { // extra fields
		if len(data) < at+2 {
			return 0
		}
		at += 2 + int(binary.LittleEndian.Uint16(data[at:]))
	}
	for _, text := range []byte{8, 16} { // a name, a comment
		if flags&text == 0 {
			continue
		}
		if at >= len(data) {
			return 0
		}
		end := bytes.IndexByte(data[at:], 0)
		if end < 0 {
			return 0
		}
		at += end + 1
	}
	if flags&2 != 0 { // a checksum of the header
		at += 2
	}
	return at
}

// zipBody returns the length of the header of a file in a zip archive, or 0 if it is not compressed.
func zipBody(data []byte) int {
	if len(data) < 30 || data[3] != 4 || binary.LittleEndian.Uint16(data[8:]) != 8 {
		return 0
	}
	return 30 + int(binary.LittleEndian.Uint16(data[26:])) + int(binary.LittleEndian.Uint16(data[28:]))
}

package listing

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
)

// digestSize is the length of the digest of what a cursor belongs to, in bytes.
const digestSize = 8

// mostCursor bounds a cursor that is read, in bytes.
const mostCursor = 8 << 10

var errCursor = errors.New("it is no cursor: send the header Coopr-Next of an answer, unchanged")

// encodeCursor returns the cursor of a place.
func encodeCursor(digest [digestSize]byte, place []value) string {
	b := append([]byte{}, digest[:]...)
	for _, v := range place {
		b = append(b, v.kind)
		switch v.kind {
		case number:
			b = binary.BigEndian.AppendUint64(b, math.Float64bits(v.num))
		case text:
			b = binary.AppendUvarint(b, uint64(len(v.text)))
			b = append(b, v.text...)
		}
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeCursor returns the place of a cursor, which has n values.
func decodeCursor(s string, digest [digestSize]byte, n int) ([]value, error) {
	if len(s) > mostCursor {
		return nil, errCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < digestSize {
		return nil, errCursor
	}
	if [digestSize]byte(b) != digest {
		return nil, errors.New("it belongs to a list with another sort, filter or tenant: begin without a cursor")
	}
	b = b[digestSize:]
	out := make([]value, 0, n)
	for len(b) > 0 && len(out) < n {
		v := value{kind: b[0]}
		b = b[1:]
		switch v.kind {
		case absent:
		case number:
			if len(b) < 8 {
				return nil, errCursor
			}
			v = numberOf(math.Float64frombits(binary.BigEndian.Uint64(b)))
			b = b[8:]
		case text:
			size, w := binary.Uvarint(b)
			if w <= 0 || size > uint64(len(b)-w) {
				return nil, errCursor
			}
			v.text = string(b[w : w+int(size)])
			b = b[w+int(size):]
		default:
			return nil, errCursor
		}
		out = append(out, v)
	}
	if len(b) > 0 || len(out) != n {
		return nil, errCursor
	}
	return out, nil
}

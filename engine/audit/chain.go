package audit

import (
	"crypto/sha256"
	"encoding/binary"
)

// The kinds of records in the chain.
const (
	kindChange  = 1
	kindTasks   = 2
	kindGap     = 3 // in the place of dropped records
	kindRequest = 4 // a change, with where its request came from
)

// next returns the place after prev of a record with this digest.
func (l Place) next(digest Hash) Place {
	var b [72]byte
	copy(b[:32], l.Hash[:])
	binary.BigEndian.PutUint64(b[32:40], l.Seq+1)
	copy(b[40:], digest[:])
	return Place{Seq: l.Seq + 1, Hash: sha256.Sum256(b[:])}
}

// canonical appends the bytes of a change that are hashed.
func (c *Change) canonical(b []byte) []byte {
	kind := c.kind()
	b = append(b, kind)
	b = binary.BigEndian.AppendUint64(b, c.Index)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Time))
	for _, s := range c.texts(kind) {
		b = appendText(b, *s)
	}
	b = appendText(b, string(c.Before))
	return appendText(b, string(c.After))
}

// canonical appends the bytes of a batch that are hashed: everything that a reader is shown,
// so that a reader can compute the hash from that alone.
func (t *Tasks) canonical(b []byte) []byte {
	p := t.Plan
	b = canonicalHead(b, t.Index, t.Time, [...]string{p.Tenant, t.Actor, t.Request, p.Cluster, p.Operation}, len(t.Items))
	for i := range t.Items {
		v := t.Items[i].Vertex
		b = t.Items[i].canonical(b, p.Action[v].String(), p.node(v), p.service(v))
	}
	return b
}

func canonicalHead(b []byte, index uint64, at int64, texts [5]string, items int) []byte {
	b = append(b, kindTasks)
	b = binary.BigEndian.AppendUint64(b, index)
	b = binary.BigEndian.AppendUint64(b, uint64(at))
	for _, s := range texts {
		b = appendText(b, s)
	}
	return binary.AppendUvarint(b, uint64(items))
}

func (t *TaskChange) canonical(b []byte, action, node, service string) []byte {
	b = binary.BigEndian.AppendUint32(b, t.Vertex)
	b = append(b, byte(t.From), byte(t.To), t.Attempt)
	b = binary.BigEndian.AppendUint64(b, t.Fence)
	b = appendText(b, action)
	b = appendText(b, node)
	b = appendText(b, service)
	b = appendText(b, t.Agent)
	if t.End == nil {
		return append(b, 0)
	}
	b = append(b, 1)
	b = appendText(b, t.End.Outcome)
	return appendText(b, t.End.Message)
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

package main

import (
	bits "encoding/binary"
	"errors"
)

// Kubernetes' protobuf, as far as the load needs it: a message is the concatenation of its fields.

// protobufPrefix opens every object in protobuf that stands alone.
const protobufPrefix = "k8s\x00"

// text is a field with a string, bytes or a message.
func text[T string | []byte](number int, value T) []byte {
	field := bits.AppendUvarint(nil, uint64(number)<<3|2)
	field = bits.AppendUvarint(field, uint64(len(value)))
	return append(field, value...)
}

// varint is a field with an integer or a truth value.
func varint(number int, value uint64) []byte {
	return bits.AppendUvarint(bits.AppendUvarint(nil, uint64(number)<<3), value)
}

// message is a field with a message of these fields.
func message(number int, fields ...[]byte) []byte { return text(number, join(fields...)) }

func join(fields ...[]byte) (all []byte) {
	for _, field := range fields {
		all = append(all, field...)
	}
	return all
}

// whole is an object of these fields, with its type, as it is sent.
func whole(apiVersion, kind string, fields ...[]byte) []byte {
	return append([]byte(protobufPrefix), join(message(1, text(1, apiVersion), text(2, kind)), message(2, fields...), text(3, ""), text(4, ""))...)
}

var errProtobuf = errors.New("this is no object in protobuf")

// fields calls visit with each field of a message that has a length, until it returns false.
func fields(message []byte, visit func(number int, value []byte) bool) error {
	for len(message) > 0 {
		key, n := bits.Uvarint(message)
		if n <= 0 {
			return errProtobuf
		}
		message = message[n:]
		value, n := bits.Uvarint(message)
		if n <= 0 {
			return errProtobuf
		}
		message = message[n:]
		switch key & 7 {
		case 0:
		case 2:
			if value > uint64(len(message)) {
				return errProtobuf
			}
			if !visit(int(key>>3), message[:value]) {
				return nil
			}
			message = message[value:]
		default:
			return errProtobuf
		}
	}
	return nil
}

// field is the first field of that number, nil if there is none.
func field(message []byte, number int) (found []byte, err error) {
	err = fields(message, func(n int, value []byte) bool {
		if n == number {
			found = value
		}
		return n != number
	})
	return found, err
}

// raw is the object in what a server has sent, without its type.
func raw(body []byte) ([]byte, error) {
	if len(body) < len(protobufPrefix) || string(body[:len(protobufPrefix)]) != protobufPrefix {
		return nil, errProtobuf
	}
	return field(body[len(protobufPrefix):], 2)
}

// metadata is the metadata of an object that a server has sent.
func metadata(body []byte) ([]byte, error) {
	object, err := raw(body)
	if err != nil {
		return nil, err
	}
	return field(object, 1)
}

// eventCounter finds the events in a watch's body, which comes in parts that end anywhere. It looks
// at the kind of an event and passes over the object: decoding is the client's work, not the server's.
type eventCounter struct {
	protobuf bool
	head     []byte // the beginning of the present event, up to its kind
	left     uint64 // bytes of the present event that are still to come (protobuf)
	inLine   bool   // the present event's kind is known, and its end is not (JSON)
}

const (
	// lengthSize is the size of the length that precedes an event in protobuf.
	lengthSize = 4
	// protobufKind is where the first letter of the kind stands in an event, after the length, a tag and the kind's own length.
	protobufKind = lengthSize + 2
	// jsonKind is where it stands in JSON: {"type":"ADDED"
	jsonKind = len(`{"type":"`)
)

// write calls seen with the first letter of the kind of each event that begins in this part.
func (c *eventCounter) write(part []byte, seen func(kind byte)) {
	for len(part) > 0 {
		switch {
		case c.left > 0:
			n := min(c.left, uint64(len(part)))
			c.left -= n
			part = part[n:]
		case c.inLine:
			end := 0
			for end < len(part) && part[end] != '\n' {
				end++
			}
			c.inLine = end == len(part)
			part = part[min(end+1, len(part)):]
		default:
			at := jsonKind
			if c.protobuf {
				at = protobufKind
			}
			n := min(at+1-len(c.head), len(part))
			c.head = append(c.head, part[:n]...)
			part = part[n:]
			if len(c.head) <= at {
				continue
			}
			seen(c.head[at])
			if c.protobuf {
				c.left = uint64(bits.BigEndian.Uint32(c.head)) - uint64(at+1-lengthSize)
			} else {
				c.inLine = true
			}
			c.head = c.head[:0]
		}
	}
}

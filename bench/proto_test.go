package main

import (
	bits "encoding/binary"
	"strings"
	"testing"
)

func TestProtobufFieldsAreFoundAgain(t *testing.T) {
	body := whole("v1", "Pod", message(1, text(1, "web"), varint(7, 300), text(6, "4711")), message(2, text(1, "spec")))
	if !strings.HasPrefix(string(body), "k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12") {
		t.Errorf("%q", body)
	}
	meta, err := metadata(body)
	if err != nil {
		t.Fatal(err)
	}
	if version, err := field(meta, 6); err != nil || string(version) != "4711" {
		t.Errorf("%q %v", version, err)
	}
	if none, err := field(meta, 9); err != nil || none != nil {
		t.Errorf("%q %v", none, err)
	}
}

func TestBytesThatAreNoProtobufAreRefused(t *testing.T) {
	for _, body := range []string{"", "k8s", "{}", "k8s\x00\x12\x7f", "k8s\x00\x0d\x00\x00", "k8s\x00\x80"} {
		if _, err := metadata([]byte(body)); err == nil {
			t.Errorf("%q is taken", body)
		}
	}
}

func TestEventsAreCountedWhereverPartsEnd(t *testing.T) {
	frame := func(kind string, size int) string {
		event := string(text(1, kind)) + string(text(2, strings.Repeat("x", size)))
		return string(bits.BigEndian.AppendUint32(nil, uint32(len(event)))) + event
	}
	line := func(kind string) string { return `{"type":"` + kind + `","object":{"a":"` + "b\\n" + `"}}` + "\n" }
	for name, c := range map[string]struct {
		protobuf bool
		body     string
	}{
		"protobuf": {true, frame("ADDED", 300) + frame("MODIFIED", 0) + frame("BOOKMARK", 7) + frame("DELETED", 1)},
		"JSON":     {false, line("ADDED") + line("MODIFIED") + line("BOOKMARK") + line("DELETED")},
	} {
		for size := 1; size <= len(c.body); size++ {
			counter, kinds := eventCounter{protobuf: c.protobuf}, ""
			for at := 0; at < len(c.body); at += size {
				counter.write([]byte(c.body[at:min(at+size, len(c.body))]), func(kind byte) { kinds += string(kind) })
			}
			if kinds != "AMBD" {
				t.Fatalf("%s in parts of %d: %q", name, size, kinds)
			}
		}
	}
}

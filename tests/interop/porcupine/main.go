// Judges histories (docs/history.md) by porcupine: is each partition a log, and every client's view of it linearizable?
//
// The log of a partition is an object with these operations; offsets have no gaps.
//
//	append(value, process)   returns an offset: the log's length. Of one process they keep the order in which they were invoked. One whose
//	                         answer is not known took effect where its value was polled, at any time after it was invoked; or not at all.
//	poll(from)               returns records: those of the log from that offset on, one after the other. From is the offset after the
//	                         consumer's last record; any after an assignment. It takes effect when it ends: logs only grow.
//	seen()                   at the end: what all polls together have returned of each offset, up to the highest, is the log. An append whose
//	                         answer is not known need not have been polled.
//	drained()                at the end, if the history says so: that is all there is.
//
// Commits of groups, transactions and their records are not judged.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const timeout = 60 * time.Second

type event struct {
	Process    any      `json:"process"`
	Type       string   `json:"type"`
	F          string   `json:"f"`
	Topic      string   `json:"topic"`
	Partition  int      `json:"partition"`
	Value      string   `json:"value"`
	Offset     int      `json:"offset"`
	Records    [][4]any `json:"records"`
	Partitions [][2]any `json:"partitions"`
}

type place struct {
	topic     string
	partition int
}

type record struct {
	offset int
	value  string
}

type send struct {
	value              string
	process            string
	invoked, answered  int64 // events; answered is 0 while there is no answer
	partition          place
	offset             int
	hasFailed, isKnown bool
}

// What an operation does, and what it returned.
type call struct {
	kind    string
	value   string
	process string
	invoked int64
	isKnown bool
	from    int      // of a poll; -1 for any
	records []record // of a poll, in their order; of all polls together, for "seen", by offset
	offset  int      // of an append; for one whose answer is not known, where its value was polled
}

// A log, as a list of which all earlier states are a part.
type node struct {
	before  *node
	value   string
	isKnown bool
}

type state struct {
	length int
	last   *node
	hash   uint64
	sent   map[string]int64 // by process: the event that invoked its last acknowledged append
}

func (s state) at(offset int) *node {
	found := s.last
	for position := s.length - 1; position > offset; position-- {
		found = found.before
	}
	return found
}

func (s state) appended(c call) state {
	next := state{length: s.length + 1, last: &node{s.last, c.value, c.isKnown}, hash: s.hash*1099511628211 + hashOf(c.value), sent: s.sent}
	if c.isKnown {
		next.sent = make(map[string]int64, len(s.sent)+1)
		for process, invoked := range s.sent {
			next.sent[process] = invoked
		}
		next.sent[c.process] = c.invoked
	}
	return next
}

func hashOf(value string) uint64 {
	hash := uint64(14695981039346656037)
	for _, one := range []byte(value) {
		hash = (hash ^ uint64(one)) * 1099511628211
	}
	return hash
}

var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, input, _ any) (bool, any) {
		s, c := before.(state), input.(call)
		switch c.kind {
		case "append":
			if c.offset != s.length || (c.isKnown && s.sent[c.process] > c.invoked) {
				return false, s
			}
			return true, s.appended(c)
		case "poll":
			due := c.from
			for _, found := range c.records {
				if (due >= 0 && found.offset != due) || found.offset >= s.length || s.at(found.offset).value != found.value {
					return false, s
				}
				due = found.offset + 1
			}
			return true, s
		case "seen":
			if len(c.records) > s.length {
				return false, s
			}
			for offset := len(c.records) - 1; offset >= 0; offset-- {
				found, one := c.records[offset], s.at(offset)
				wasPolled := found.offset == offset
				if (wasPolled && found.value != one.value) || (!wasPolled && one.isKnown) {
					return false, s
				}
			}
			return true, s
		}
		return s.length == c.offset, s // drained
	},
	Equal: func(one, other any) bool {
		a, b := one.(state), other.(state)
		if a.length != b.length || a.hash != b.hash || len(a.sent) != len(b.sent) {
			return false
		}
		for process, invoked := range a.sent {
			if b.sent[process] != invoked {
				return false
			}
		}
		return true
	},
}

type history struct {
	operations map[place][]porcupine.Operation
	sends      map[string]*send // by topic and value
	inOrder    []*send
	polled     map[place]map[int]string
	firstPlace map[string]record // of each value, with its partition below
	firstIn    map[string]place
	positions  map[string]int // by process and partition: the offset that is due
	isDrained  bool
	events     int64
}

func (h *history) add(where place, c call, from, to int64) {
	h.operations[where] = append(h.operations[where], porcupine.Operation{Input: c, Call: from, Return: to})
}

func (h *history) take(e event) {
	h.events++
	process := fmt.Sprint(e.Process)
	switch {
	case e.F == "send":
		key := e.Topic + "/" + e.Value
		found := h.sends[key]
		if found == nil {
			found = &send{value: e.Value, process: process, invoked: h.events, partition: place{e.Topic, -1}}
			h.sends[key] = found
			h.inOrder = append(h.inOrder, found)
		}
		switch e.Type {
		case "ok":
			found.isKnown, found.answered, found.partition, found.offset = true, h.events, place{e.Topic, e.Partition}, e.Offset
		case "fail":
			found.hasFailed = true
		}
	case e.F == "poll" && e.Type == "ok":
		h.poll(e, process)
	case e.F == "assign" && e.Type == "ok":
		for _, found := range e.Partitions {
			delete(h.positions, fmt.Sprint(process, "/", found[0], "/", found[1]))
		}
	case e.F == "drained" && e.Type == "ok":
		h.isDrained = true
	}
}

func (h *history) poll(e event, process string) {
	byPlace := map[place][]record{}
	for _, found := range e.Records {
		where := place{found[0].(string), int(found[1].(float64))}
		one := record{int(found[2].(float64)), fmt.Sprint(found[3])}
		byPlace[where] = append(byPlace[where], one)
		if h.polled[where] == nil {
			h.polled[where] = map[int]string{}
		}
		h.polled[where][one.offset] = one.value
		key := where.topic + "/" + one.value
		if _, isThere := h.firstIn[key]; !isThere {
			h.firstIn[key], h.firstPlace[key] = where, one
		}
	}
	for where, records := range byPlace {
		key := fmt.Sprint(process, "/", where.topic, "/", where.partition)
		from, isThere := h.positions[key]
		if !isThere {
			from = -1
		}
		h.positions[key] = records[len(records)-1].offset + 1
		h.add(where, call{kind: "poll", from: from, records: records}, 2*h.events, 2*h.events+1)
	}
}

func (h *history) finish() {
	for _, found := range h.inOrder {
		c := call{kind: "append", value: found.value, process: found.process, invoked: found.invoked, isKnown: found.isKnown, offset: found.offset}
		key := found.partition.topic + "/" + found.value
		switch {
		case found.isKnown:
			h.add(found.partition, c, 2*found.invoked, 2*found.answered+1)
		case !found.hasFailed:
			if where, isThere := h.firstIn[key]; isThere {
				c.offset = h.firstPlace[key].offset
				h.add(where, c, 2*found.invoked, math.MaxInt64)
			}
		}
	}
	end := 2*h.events + 2
	for where, polled := range h.polled {
		highest := -1
		for offset := range polled {
			highest = max(highest, offset)
		}
		seen := make([]record, highest+1)
		for offset := range seen {
			value, isThere := polled[offset]
			seen[offset] = record{-1, value}
			if isThere {
				seen[offset].offset = offset
			}
		}
		h.add(where, call{kind: "seen", records: seen}, end, end+1)
	}
	for where := range h.operations {
		if h.isDrained {
			h.add(where, call{kind: "drained", offset: length(h.polled[where])}, end+2, end+3)
		}
	}
}

func length(polled map[int]string) int {
	found := 0
	for offset := range polled {
		found = max(found, offset+1)
	}
	return found
}

func judged(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := &history{
		operations: map[place][]porcupine.Operation{}, sends: map[string]*send{}, polled: map[place]map[int]string{},
		firstPlace: map[string]record{}, firstIn: map[string]place{}, positions: map[string]int{},
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		found := event{Partition: -1, Offset: -1}
		if err := json.Unmarshal(lines.Bytes(), &found); err != nil {
			return "", err
		}
		h.take(found)
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	h.finish()
	verdict := porcupine.Ok
	for _, operations := range h.operations {
		switch porcupine.CheckOperationsTimeout(model, operations, timeout) {
		case porcupine.Illegal:
			return "Illegal", nil
		case porcupine.Unknown:
			verdict = porcupine.Unknown
		}
	}
	return string(verdict), nil
}

func main() {
	for _, path := range os.Args[1:] {
		verdict, err := judged(path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
		fmt.Printf("%s\t%s\n", path, verdict)
	}
}

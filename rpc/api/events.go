package api

// LastEventID is the header with the index after which a reader of events continues.
const LastEventID = "Last-Event-ID"

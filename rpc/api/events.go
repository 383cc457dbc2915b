package api

// LastEventID is the header by which a reader of events goes on where it was.
const LastEventID = "Last-Event-ID"

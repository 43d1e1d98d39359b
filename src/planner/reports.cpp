#include "planner/reports.hpp"

namespace ebb::policy {

void Reports::on(HistoryId, const event::Carried& e) { transfers_.carried(e.command); }

void Reports::on(HistoryId, const event::Finished& e) {
  const Transfers::Sent sent = transfers_.ended(e.command, false);
  Move& m = transfers_[sent.move];
  if (m.cancelled) {
    transfers_.remove_chunk(m, sent.offset);
    if (m.in_flight == 0) outcomes_.abort_move(sent.move);
    return;
  }
  Chunk& chunk = transfers_.chunk_of(m, sent.offset);
  chunk.moving = false;
  if (chunk.hop > 0) transfers_.return_slot(m, chunk, chunk.hop - 1);
  if (++chunk.hop < m.route.hops) return;
  transfers_.return_slots(m, chunk);
  context_.dirty |= transfers_.room_for_more(m.from, m.to, m.kind);  // the link runs dry: time to plan more for it
  outcomes_.settle(sent.move);
}

void Reports::on(HistoryId, const event::Failed& e) {
  const Transfers::Sent sent = transfers_.ended(e.command, true);
  Move& m = transfers_[sent.move];
  // No word on the transfer, nor on the application's stream, which has seen nothing of it.
  const Checkpoint& c = table_[m.checkpoint];
  const bool nowhere = m.to != kNoTier && space_.beyond(c, m.to);
  const bool unread =
      m.from != kNoTier && space_.beyond(c, m.from) && c.at[m.from].watermark < sent.offset + sent.length;
  const bool no_memory = e.cause == event::Failed::no_room && (nowhere || unread);
  const bool homeless = nowhere && !m.ordered;  // not to be tried again
  if (!m.failed) m.displaced |= no_memory || homeless;
  if (m.to != kNoTier) outcomes_.spoil_readers(m, sent.offset, no_memory);
  // What is full stays full for longer than retries take; what an application's stream was given cannot be given again.
  const bool hopeless = e.cause != event::Failed::passing || on_its_stream(m);
  if (!m.cancelled && !m.displaced && !hopeless && m.retries < context_.machine.max_retries) {
    ++m.retries;
    ++context_.counters.retries;
    Chunk& chunk = transfers_.chunk_of(m, sent.offset);
    chunk.moving = false;
    if (sent.hop == 0) transfers_.return_slots(m, chunk);  // others may need them meanwhile
    return;
  }
  if (!m.displaced) {
    ++context_.counters.failures;
    m.failed = true;
    // Memory can always be read; `source` says that its bytes are not those written.
    const bool unreadable = sent.hop == 0 && m.from != kNoTier && e.cause != event::Failed::no_room;
    m.unreadable |=
        unreadable && (context_.memory(m.from) ? e.cause == event::Failed::source : !context_.machine.ephemeral);
  }
  transfers_.remove_chunk(m, sent.offset);
  if (m.cancelled) {
    if (m.in_flight == 0) outcomes_.abort_move(sent.move);
  } else {
    outcomes_.cancel_move(sent.move);
  }
}

}  // namespace ebb::policy

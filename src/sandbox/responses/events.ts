import { contentPart, messageItem, responseHead, responseObject, type Answer } from './answer.ts';

/** One server-sent event, without its number. */
type Event = Record<string, unknown> & { type: string };

/** The events of a streamed response in their order; the last one tells how it ended. */
export function eventsOf(answer: Answer, id: string, createdAt: number): Event[] {
  const head = responseHead(answer, id, createdAt);
  const events: Event[] = [
    { type: 'response.created', response: head },
    { type: 'response.in_progress', response: head },
    ...(answer.status === 'failed' ? [] : messageEvents(answer, id)),
    { type: `response.${answer.status}`, response: responseObject(answer, id, createdAt) },
  ];
  return events.map((event, index) => ({ ...event, sequence_number: index }));
}

function messageEvents(answer: Answer, id: string): Event[] {
  const kind = answer.refused ? 'refusal' : 'output_text';
  const place = { item_id: `msg_${id}`, output_index: 0, content_index: 0 };
  const item = (content: object[]): object => ({ output_index: 0, item: messageItem(answer, id, content) });
  const part = (text: string): object => ({ ...place, part: contentPart(answer, text) });
  const deltas = answer.text
    .split(/(?<=\s)/)
    .map((delta) => ({ type: `response.${kind}.delta`, ...place, delta }));
  const done = answer.refused ? { refusal: answer.text } : { text: answer.text };
  return [
    { type: 'response.output_item.added', ...item([]) },
    { type: 'response.content_part.added', ...part('') },
    ...deltas,
    { type: `response.${kind}.done`, ...place, ...done },
    { type: 'response.content_part.done', ...part(answer.text) },
    { type: 'response.output_item.done', ...item([contentPart(answer, answer.text)]) },
  ];
}

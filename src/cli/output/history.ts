import type { Goal, JobError, RecordedEvent } from '../../job.ts';
import { printableLine } from '../../printable.ts';
import { size } from './wording.ts';

/** What an event of a job's record means, in a line; `undefined` is a line that cannot be read. */
export function eventText(event: RecordedEvent | undefined): string {
  return event === undefined ? 'a line of the record that cannot be read' : printableLine(textOf(event), 500);
}

function textOf(event: RecordedEvent): string {
  switch (event.type) {
    case 'prepared':
      return `recorded for ${event.base_url || 'an unknown gateway'}; nothing was sent yet`;
    case 'began':
      return `${commandText(event)} (process ${event.owner.pid})`;
    case 'sending':
      return `attempt ${event.attempt}: sending${costText(event.cost?.at_most)}`;
    case 'reply':
      return `attempt ${event.attempt}: the gateway answered ${event.reply.status}${event.reply.complete ? '' : '; its body is not recorded in full'}`;
    case 'unavailable':
      return `attempt ${event.attempt}: not handled, nothing was charged: ${errorText(event.error)}`;
    case 'rejected':
      return `rejected, nothing was charged: ${errorText(event.error)}`;
    case 'unknown':
      return `unknown whether it was accepted: ${errorText(event.error)}`;
    case 'resolved':
      return resolutionTexts[event.how];
    case 'rated':
      return `rated ${event.rating ?? '-'}${event.note === undefined ? '' : `: ${event.note}`}`;
    case 'accepted':
      return `accepted as ${event.handle}${nativeText(event.native_status)}`;
    case 'observed':
    case 'finished':
      return observationText(event);
    case 'file':
      return `saved ${event.file.path} (${size(event.file.bytes)})`;
    case 'delivered':
      return 'the command had what it asked for';
    case 'detached':
      return `the command ended with exit ${event.exit_code}`;
  }
}

const resolutionTexts = {
  adopted: 'settled by hand: the task exists',
  'not-created': 'settled by hand: the task does not exist',
  resubmit: 'settled by hand: to be sent again',
};

const askTexts = { accept: 'to be accepted', finish: 'to finish', file: 'to be saved' };

function commandText({ command, ask, output }: Goal): string {
  const where = output === undefined ? '' : ` as ${output === '-' ? 'standard output' : output}`;
  return `a ${command} command began: ${askTexts[ask]}${where}`;
}

function observationText(event: RecordedEvent & { type: 'observed' | 'finished' }): string {
  const percent = event.progress === undefined ? '' : ` ${Math.round(event.progress)}%`;
  const error = event.type === 'finished' && event.error ? `: ${errorText(event.error)}` : '';
  return `${event.state}${nativeText(event.native_status)}${percent}${error}`;
}

function nativeText(native: string | undefined): string {
  return native ? ` (${native})` : '';
}

function costText(cost: string | undefined): string {
  return cost === undefined ? ', at a price that is not known' : `, at most ${cost}`;
}

function errorText({ code, message }: JobError): string {
  return `${message} [${code}]`;
}

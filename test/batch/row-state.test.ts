import { expect, it } from 'vitest';
import type { PlannedRow, Work } from '../../src/batch/planned-row.ts';
import { rowStatusOf, stateAfter } from '../../src/batch/row-state.ts';
import { MgwError } from '../../src/errors.ts';
import { fingerprintOf } from '../../src/jobs/order.ts';
import { holderText, names, newJobId } from '../../src/ledger/names.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import { deadOwner, depsFor, orderOf } from '../jobs/harness.ts';
import { freshFolder } from '../support/servers.ts';

const job = newJobId(1);
const planned = { id: 'a', state: 'new', take: { number: 1, key: 'clips/a' } } as PlannedRow;

it('a row is running if the gateway accepted it but its handle could not be recorded', () => {
  const error = new MgwError('local_io', 'The database does not respond.', { charged: 'yes', handle: 't1' });
  expect(stateAfter({ planned, files: [], isPaid: false, error })).toBe('running');
  expect(
    stateAfter({
      planned,
      files: [],
      isPaid: false,
      error: error.with({ charged: 'no', handle: undefined }),
    }),
  ).toBe('new');
});

it.each([
  {
    name: 'is new if the process that prepared the earlier content has died',
    owner: deadOwner(),
    state: 'new',
  },
  {
    name: 'is running if a process may still send the earlier content',
    owner: currentOwner(),
    state: 'running',
  },
  {
    name: 'is running if the record of the earlier content has lost an attempt',
    owner: deadOwner(),
    state: 'running',
    isSent: true,
  },
])('a changed row without a recorded attempt $name', async ({ owner, state, isSent = false }) => {
  const key = 'clips/a';
  const deps = await depsFor('http://127.0.0.1:9', freshFolder());
  const fingerprint = fingerprintOf(orderOf(), deps.gateway);
  await deps.ledger.claim(names.first({ key, fingerprint }), holderText({ job, fingerprint, owner }));
  await deps.ledger.create(job, [
    { type: 'prepared', protocol: 'c', base_url: deps.gateway, fingerprint, account: '', key },
    { type: 'began', run: 'r', owner, command: 'submit', ask: 'file', output: '/a.mp4' },
  ]);
  if (isSent) {
    await deps.ledger.claim(names.attempt(job, 1), JSON.stringify(owner));
    await deps.ledger.confirm(names.attempt(job, 1));
  }
  const body = { model: 'vendor-h3', prompt: 'a ship' };
  const work: Work = { protocol: c, body, userBody: body, exchange: c.submission(body), advice: [] };
  const status = await rowStatusOf({ key, work, path: '/a.mp4' }, deps);
  expect(status).toMatchObject(
    state === 'new'
      ? { state, take: { key: 'clips/a/2' } }
      : { state, take: { key }, changes: [expect.any(String)] },
  );
});

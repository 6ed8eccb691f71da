import type { Operation } from './calls.ts';
import { Gateway, json, type Created, type Response } from './gateway.ts';
import type { NetworkEvent } from './network.ts';

/**
 * A fault of a request. Requests are counted from 1 in the order in which they are sent. A late answer never arrives; a
 * slow answer arrives after a few seconds.
 */
export type NetworkFault =
  'refused' | 'lost' | 'answer lost' | 'answer late' | 'answer slow' | 'answer cut' | 'error' | 'busy';

/** A request in progress, and its response. */
export interface Request {
  number: number;
  started: Operation;
  fault: NetworkFault | undefined;
  hasArrived: boolean;
  events: NetworkEvent[];
  /** Whether the connection breaks after the request's events. */
  breaks: boolean;
  /** The time at which the events begin, by the machine's clock. */
  due: number;
}

/** The network between the processes and the gateway. */
export class Traffic {
  /** The gateways by address. */
  readonly gateways = new Map<string, Gateway>();
  /** The faults to inject into future requests, by request number. */
  faults = new Map<number, NetworkFault>();
  #count = 0;
  readonly #flights: Request[] = [];

  constructor(readonly note: (line: string) => void) {}

  /** The tasks that all gateways have created. */
  get created(): Created[] {
    return [...this.gateways.values()].flatMap(({ created }) => created);
  }

  /** Returns whether the connection for the next request is refused. */
  refuses(): boolean {
    const isRefused = this.faults.get(this.#count + 1) === 'refused';
    if (isRefused) this.#count += 1;
    return isRefused;
  }

  leave(started: Operation): Request {
    this.#count += 1;
    const number = this.#count;
    const fault = this.faults.get(number);
    const request = { number, started, fault, hasArrived: false, events: [], breaks: false, due: 0 };
    this.#flights.push(request);
    return request;
  }

  /** Returns the requests that are in transit. Each request arrives even if its process has died. */
  underWay(): Request[] {
    return this.#flights.filter(({ hasArrived }) => !hasArrived);
  }

  arrive(request: Request): void {
    const { fault, started } = request;
    const [method, path, , body, origin] = started.args as [string, string, object, string, string];
    request.hasArrived = true;
    this.note(`request ${request.number}, ${method} ${path}${fault === undefined ? '' : `: ${fault}`}`);
    request.breaks = fault === 'lost' || fault === 'answer lost' || fault === 'answer cut';
    if (fault === 'lost') return;
    if (fault === 'busy')
      return void (request.events = eventsOf(json(429, { error: { message: 'too many requests' } })));
    const gateway = this.gateways.get(origin) ?? new Gateway(origin);
    this.gateways.set(origin, gateway);
    const response = gateway.answer(method, path, body);
    if (fault === 'answer lost' || fault === 'answer late') return;
    request.events = eventsOf(fault === 'error' ? json(500, { error: { message: 'an error' } }) : response);
    if (fault === 'answer cut') {
      const [head, data] = request.events;
      const bytes = data?.kind === 'data' ? data.bytes.subarray(0, 5) : Buffer.alloc(0);
      request.events = head === undefined ? [] : [head, { kind: 'data', bytes }];
    }
  }
}

function eventsOf({ status, headers, pieces }: Response): NetworkEvent[] {
  const data = pieces.filter(({ length }) => length > 0).map((bytes) => ({ kind: 'data', bytes }) as const);
  return [{ kind: 'head', status, headers }, ...data, { kind: 'end' }];
}

import { make, mark } from './dom.ts';

/** Five stars that show a rating and set it; the one that is set takes it back. `isQuiet` leaves them out of the tab order. */
export function stars(set: (rating: number | undefined) => void, isQuiet = false): Stars {
  let shown: number | undefined;
  const buttons = [1, 2, 3, 4, 5].map((rating) =>
    make(
      'button',
      {
        type: 'button',
        class: 'star',
        'aria-label': `${rating} of 5`,
        tabindex: isQuiet ? -1 : undefined,
        onclick: (event) => {
          event.stopPropagation();
          set(shown === rating ? undefined : rating);
        },
      },
      '☆',
    ),
  );
  const element = make('span', { class: 'stars', role: 'group', 'aria-label': 'Rating' }, ...buttons);
  const show = (rating: number | undefined): void => {
    shown = rating;
    buttons.forEach((button, index) => {
      const isOn = rating !== undefined && index < rating;
      button.classList.toggle('on', isOn);
      button.textContent = isOn ? '★' : '☆';
      mark(button, 'aria-pressed', String(rating === index + 1));
    });
  };
  show(undefined);
  return { element, show };
}

export interface Stars {
  element: HTMLElement;
  show: (rating: number | undefined) => void;
}

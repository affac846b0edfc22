"""Operations of several dispatches, on arrays on a card."""
